"""The quickstart: five roles teach a tiny policy to write a hidden word, on an embedded local Ray.

`python -m dlrl_quickstart` runs it; it needs nothing but dlrl.
"""
