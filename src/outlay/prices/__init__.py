"""What an hour costs, where that was read, and how far it is to be believed.

sources.py          what a source is: an address, a reply, listings
download.py         one request: conditional, bounded in time and size, tried again where it helps
skypilot.py         SkyPilot's hosted catalogue, a CSV for each cloud
gpuhunt_catalog.py  gpuhunt's published catalogues, and the providers it asks itself
vast.py             the hosts of Vast.ai, each with its disk, network and reliability
spot_advisor.py     how often AWS takes spot machines away
own_lists.py        price lists of one's own: offers, discounts, cards, parts, exchange rates
listing.py          one machine type in one place, as one source lists it on one day
price_list.py       from listings to offers: zones merged, GPUs looked up
checks.py           what is doubtful about an offer, and when a whole reply is refused
price_store.py      what is kept: the last good prices, and every price there ever was
refresh.py          all of it, source by source
books.py            the prices a command works with: the newest good ones, or those of a day
history.py          what prices did
alerts.py           being told when a price falls
status.py           what is there and what is missing, for `outlay check`
"""
