"""The Python packages that a script needs: read, resolved, installed and cached."""
