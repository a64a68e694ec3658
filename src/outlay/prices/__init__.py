"""What an hour costs, where that was read, and how far it is to be believed.

sources.py          what a source is: an address, a reply, listings
download.py         one request: conditional, bounded in time and size, tried again where it helps
skypilot.py         SkyPilot's hosted catalogue, a CSV for each cloud
gpuhunt_catalog.py  gpuhunt's published catalogues, and the providers it asks itself
vast.py             the hosts of Vast.ai, each with its disk, network and reliability
spot_advisor.py     how often AWS takes spot machines away
list_files.py       price lists that people write: CSV and TOML
own_lists.py        the lists of one's own that are kept, discounts, exchange rates
price_list.py       from listings to offers: zones merged, GPUs looked up
checks.py           what is doubtful about an offer, and when a whole reply is refused
price_store.py      what is kept: the last good prices, and every price there ever was
refresh.py          all of it, source by source
books.py            the prices a command works with: the newest good ones
past_books.py       the prices of a day in the past
spot_market.py      spot prices of zones with their past
history.py          what prices did
price_changes.py    what became dearer, cheaper, new or gone since a day
alerts.py           being told when a price falls
status.py           what is there and what is missing, for `outlay check`
"""
