"""Which card to buy, or where to rent, for a purpose, a budget and a use."""
