"""A probe from inside the process that trains: the same measurement, wherever code runs.

block         `with outlay.probing(steps=200) as probe:`
notebook      `%load_ext outlay`, then `%%probe`
callback      what callbacks share
lightning     a callback for Lightning's Trainer
transformers  a callback for the Trainer of transformers
"""
