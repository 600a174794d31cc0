"""How far a judge agrees with next states labelled by hand: `openclaw-rl bench judge`.

Owns the labelled cases, their two halves and the measurement. Knows no judge's insides.
"""
