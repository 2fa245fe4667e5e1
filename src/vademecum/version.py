"""The version, for those who need it without the rest."""

VERSION = "0.1.0"
