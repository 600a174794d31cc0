"""`openclaw-rl bench swap`: new versions go live under traffic, and every reply must be of one version alone.

The real server over real HTTP. What it recorded is computed again under the version that it names.
"""
