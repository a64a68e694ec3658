"""The tests are a package: an installed one of that name, as gpuhunt brings, is not found first."""
