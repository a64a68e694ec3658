"""What an hour costs, where that was read, and how far it is to be believed.

sources.py      what a source is: an address, a reply, listings
download.py     one request: conditional, bounded in time and size, tried again where that helps
skypilot.py     SkyPilot's hosted catalogue, a CSV for each cloud
gpuhunt_catalog.py  gpuhunt's published catalogues, and the providers it asks itself
vast.py         the hosts of Vast.ai, each with its disk, network and reliability
own_lists.py    price lists of one's own: offers, discounts, cards, parts, exchange rates
price_list.py   from listings to offers: zones merged, GPUs looked up
checks.py       what is doubtful about an offer, and when a whole reply is refused
store.py        what is kept: the last good prices, and every price there ever was
refresh.py      all of it, source by source
history.py      what prices did
books.py        the prices a command works with: the newest good ones, or those of a day
"""
