"""Move skills between machines: fetch, check, install, lock, sign, publish and link them."""
