"""The version, importable without the rest."""

VERSION = "0.1.0"
