"""A machine of one's own: put together from parts, judged by rules, upgraded."""
