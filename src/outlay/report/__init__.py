"""Tables, sentences, pictures and JSON documents: the only place that rounds or formats."""
