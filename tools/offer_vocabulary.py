"""Names that the tools for price tables share: doubts, GPU families, AWS regions."""

from __future__ import annotations

from outlay.facts import rows_of

DOUBTS = tuple(row["doubt"] for row in rows_of("offer_doubts.csv"))
"""Every word `doubts` may hold, in the order it holds them."""

LASTING = frozenset(("host chosen", "local disk billed apart", "marketplace"))
PATTERN_DOUBTS = tuple(
    (row["provider"], row["instance_pattern"], row["value"])
    for row in rows_of("catalogue_quirks.csv")
    if row["quirk"] == "doubt" and row["value"] in LASTING
)
"""Doubts that hold for all of a provider's instance types of a name, on any day."""

FAMILIES = frozenset(
    ("A100 40GB", "A100 80GB", "V100 16GB", "V100 32GB", "P100", "GH200", "H100", "A800 80GB")
)
"""GPU names that leave the form open."""

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
