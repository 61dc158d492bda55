"""The models, one file each. A model is a frozen dataclass of its options; `build` makes the module for some data."""
