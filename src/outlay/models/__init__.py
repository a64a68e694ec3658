"""A model by its name, and recipes that train it. Needs no torch until a recipe is traced.

A model (`model`) is what a library builds of a config: bundled, in a folder, or on a hub, of which
`config.json` alone is fetched (`hub`). A recipe (`recipe`) is a file in `data/recipes/` with its
settings as constants: rendered for a model it is an ordinary target, `step.py:training_step`.
"""
