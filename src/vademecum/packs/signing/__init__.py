"""Keys, signatures and certificates: who signed a skill."""
