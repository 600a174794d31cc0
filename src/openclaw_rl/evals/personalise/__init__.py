"""`openclaw-rl bench personalise`: simulated users with tastes, methods that learn from them, one table.

Every run goes through the real server and learner over HTTP and ends in one small JSON file; `table` and
`report` know those files alone.
"""
