"""amdcheck: is this AMD machine ready to serve AI inference, and if not, what must be done?"""

__version__ = "0.1.0"
