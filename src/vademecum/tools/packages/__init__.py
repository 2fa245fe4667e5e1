"""The Python packages that a script needs: read, resolved, installed and cached."""

# A Python script declares its requirements in a block that begins with this line, or in the first of these
# files that its skill has.
BLOCK_OPENS = "# /// script"
REQUIREMENT_FILES = ("scripts/requirements.txt", "requirements.txt")
