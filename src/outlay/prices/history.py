"""What prices did: the bundled months and every refresh since, of one GPU or machine.

`price_history` puts both together as points in time; `is_good_time` says where today's price lies
in the last year and what waiting gained in the past; `price_changes` lists what became dearer,
cheaper, new or gone since a day.
"""

from __future__ import annotations
