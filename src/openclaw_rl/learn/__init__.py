"""Loop 4: from judged turns to new weights.

`objectives` are the formulas, `batch` lays samples out as tokens, `trainer` takes the optimiser step,
`checkpoint` writes what it made, and `loop` does this over and over against the store.
"""
