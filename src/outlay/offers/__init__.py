"""What can be had: machines of clouds, quotes and machines of one's own, with their terms."""
