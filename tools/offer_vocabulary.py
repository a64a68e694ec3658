"""The words and names `build_offers.py` uses: doubts, flags, GPU families, AWS regions."""

from __future__ import annotations

# Kind: "note" what is said stands; "weighed" it may be off, which the price's range takes in;
# "caution" it may be off, and nothing says how far; "no price" nobody pays this price.
# About: the on-demand "price", the "spot" price, the "machine", or the whole "offer".
DOUBTS: dict[str, tuple[str, str, str]] = {
    "stale": (
        "caution",
        "offer",
        "Last confirmed more than 90 days ago, and a month before the rest of the catalogue",
    ),
    "withdrawn": (
        "no price",
        "offer",
        "The provider had withdrawn the instance type by the snapshot date",
    ),
    "withdrawal announced": (
        "note",
        "offer",
        "The provider has named the day in instance_ends.csv",
    ),
    "not sold on demand": (
        "no price",
        "price",
        "On-demand is a list price only; such machines are reserved",
    ),
    "bid floor": (
        "no price",
        "spot",
        "The auction's lowest bid, in the spot column; winning costs more",
    ),
    "spot only": ("note", "price", "There is no on-demand price"),
    "spot not below on-demand": (
        "note",
        "spot",
        "The listed spot price saved nothing and was removed",
    ),
    "spot in some zones": ("note", "spot", "Some zones have no spot price below on-demand"),
    "zones differ": ("caution", "price", "On-demand differs between zones; the lowest is given"),
    "region not verified": (
        "note",
        "offer",
        "Listed in every region; whether it is sold there is unknown",
    ),
    "no stock seen": ("caution", "offer", "No region offered it when the list was made"),
    "low stock": ("caution", "offer", "Few hosts have it free; it may not be had when asked for"),
    "local zone": (
        "caution",
        "offer",
        "The parent region's prices, which a local zone need not charge, on demand or as spot",
    ),
    "aggregator": ("note", "offer", "Resold: the same machine may be listed by its owner too"),
    "marketplace": (
        "caution",
        "offer",
        "Middle of many hosts' prices; vCPUs and RAM are rounded down",
    ),
    "maybe EUR": ("caution", "offer", "The figure is probably in euros and was not converted"),
    "host added": ("note", "offer", "GPU and host are listed apart; this is their sum"),
    "host chosen": ("note", "machine", "The host is one of many that can be joined to the GPU"),
    "local disk billed apart": (
        "note",
        "offer",
        "The local SSD that comes with it is not in the price; the bill has a line for it",
    ),
    "fraction of a GPU": ("note", "machine", "A share of one GPU, or a partition of it"),
    "count or name fixed": (
        "note",
        "machine",
        "The list had a wrong GPU count or name, corrected here",
    ),
    "ram fixed": (
        "note",
        "machine",
        "The list had multiplied RAM by the GPU count twice, corrected here",
    ),
    "form not stated": (
        "caution",
        "machine",
        "PCIe or SXM is not known, so speed is that of a family",
    ),
    "suspiciously cheap": ("caution", "price", "On-demand is far below others for this GPU"),
    "suspiciously dear": ("caution", "price", "On-demand is far above others for this GPU"),
    "spot suspiciously cheap": ("caution", "spot", "Spot is far below others for this GPU"),
    "spot suspiciously dear": ("caution", "spot", "Spot is far above others for this GPU"),
    "floor": (
        "weighed",
        "spot",
        "Exactly 9 or 10 % of on-demand, the lowest there is: it says nothing of what will be paid",
    ),
    "new": ("weighed", "spot", "First seen less than a month before the quote"),
    "no history": ("weighed", "spot", "One quote, and nothing is known of its past"),
    "far below usual": (
        "weighed",
        "spot",
        "Less than half of what its type usually costs in other zones",
    ),
    "unproven low": (
        "caution",
        "spot",
        "At the floor or far below usual, and for less than a quarter of a year",
    ),
    "superseded": (
        "caution",
        "price",
        "The provider has moved its prices since; see list_prices and outdated_prices",
    ),
    "second-hand": (
        "note",
        "price",
        "Read in a copy of the provider's price page, not on the page itself",
    ),
    "superseded spot": (
        "caution",
        "spot",
        "On-demand has moved or spot was read anew since; see list_prices and outdated_prices",
    ),
    "stale spot": (
        "caution",
        "spot",
        "A later list price confirms on-demand; the spot price is as old as it was",
    ),
    "average price": (
        "caution",
        "price",
        "An average of several prices of the provider, not what one machine costs",
    ),
    "outlier": (
        "caution",
        "price",
        "More than 4 times, or less than a quarter, of what it last cost",
    ),
    "spot outlier": (
        "caution",
        "spot",
        "Of on-demand more than 4 times, or less than a quarter, of what it last was",
    ),
    "price gone": (
        "note",
        "price",
        "It had an on-demand price before, and the newest list has none",
    ),
    "listed twice": (
        "caution",
        "price",
        "The list has it twice at different prices",
    ),
    "per GPU or per machine": (
        "caution",
        "offer",
        "Beside the provider's other sizes it looks like one GPU's price, or multiplied twice",
    ),
    "sources disagree": (
        "weighed",
        "price",
        "Another source's price differs by more than 5 %; the range takes both in",
    ),
    "sources far apart": (
        "caution",
        "price",
        "Another source's price, no more than a month older, differs by more than 25 %",
    ),
}
"""Every word `doubts` may hold, in the order it holds them: kind, about, meaning."""

FLAG_DOUBTS = {
    "stale": "stale",
    "region_not_verified": "region not verified",
    "spot_eq_ondemand": "",  # worked out again from the prices
    "spot_only": "",  # likewise
    "host_added": "host added",
    "not_sold_ondemand": "not sold on demand",
    "aggregator": "aggregator",
    "bid_floor": "bid floor",
    "maybe_eur": "maybe EUR",
    "fractional": "fraction of a GPU",
    "count_or_name_fixed": "count or name fixed",
}
"""Flag in the raw file to doubt. A flag that is not here stops the build."""

PATTERN_DOUBTS = (
    ("gcp", "n1-*", "host chosen"),
    # Source: https://cloud.google.com/compute/docs/accelerator-optimized-machines (GPUs, vCPUs,
    # memory and bundled local SSD are each billed). The list has the first three: $5.0277 for
    # a2-ultragpu-1g in us-central1, and 375 GB * $0.08 / 730 h = $0.0411 short of $5.0688.
    ("gcp", "a2-ultragpu-*", "local disk billed apart"),
    ("gcp", "a3-*", "local disk billed apart"),
    ("gcp", "a4-*", "local disk billed apart"),
    # Source: sky/catalog/data_fetchers/fetch_vast.py in skypilot-org/skypilot: the price of a type
    # is the median of its hosts, and the search rounds vCPUs and RAM down ("chunked").
    ("vast", "*", "marketplace"),
)
"""Doubts that hold for all of a provider's instance types of a name."""

FAMILIES = frozenset(
    ("A100 40GB", "A100 80GB", "V100 16GB", "V100 32GB", "P100", "GH200", "H100", "A800 80GB")
)
"""GPU names that leave the form open."""

H100_ASSUMED = frozenset(("cudo", "fluidstack", "paperspace", "seeweb"))
"""Providers that say only H100; the raw names file put a form there without a source."""

# Source: the scheme of AWS zone ids, the region without hyphens and with its direction shortened.
# Checked by price: on-demand prices per zone id agree with a list that names the regions
# (https://github.com/tsaol/aws-gpu, data/g7e_instances.js of 2026-08-26).
# fmt: off
AWS_REGIONS = {
    "afs1": "af-south-1", "ape1": "ap-east-1", "ape2": "ap-east-2", "apne1": "ap-northeast-1",
    "apne2": "ap-northeast-2", "apne3": "ap-northeast-3", "aps1": "ap-south-1",
    "aps2": "ap-south-2", "apse1": "ap-southeast-1", "apse2": "ap-southeast-2",
    "apse3": "ap-southeast-3", "apse4": "ap-southeast-4", "apse5": "ap-southeast-5",
    "apse7": "ap-southeast-7", "cac1": "ca-central-1", "caw1": "ca-west-1", "euc1": "eu-central-1",
    "euc2": "eu-central-2", "eun1": "eu-north-1", "eus1": "eu-south-1", "eus2": "eu-south-2",
    "euw1": "eu-west-1", "euw2": "eu-west-2", "euw3": "eu-west-3", "ilc1": "il-central-1",
    "mec1": "me-central-1", "mes1": "me-south-1", "mxc1": "mx-central-1", "sae1": "sa-east-1",
    "usge1": "us-gov-east-1", "usgw1": "us-gov-west-1", "use1": "us-east-1", "use2": "us-east-2",
    "usw1": "us-west-1", "usw2": "us-west-2",
}
# fmt: on
