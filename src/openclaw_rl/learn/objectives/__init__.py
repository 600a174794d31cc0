"""The formulas of learning, as pure functions of tensors; one idea a file.

`advantage` turns rewards and teacher gaps into advantages, `surrogate` turns those into a clipped loss,
`distillation` learns from whole distributions of a teacher, `hint_selection` picks the hint it saw,
`divergence` measures the way from a reference, `drift` leaves out samples that the policy has left behind,
and `step_reward` joins outcome and judgement over the steps of an episode. None knows a model.
"""
