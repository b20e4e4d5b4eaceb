"""Leave a target for good: `federate leave`.

`survey` reads what there is, `plan` decides what it comes to, `tenure` sees to it that somebody
leads until the last mirror is gone and nobody else does afterwards, `drain` frees the hub pods,
`clearing` removes what is left on both sides, `leaving` and `abandoning` put the steps in order.
Each step looks first and does what is left to do, so all may be killed anywhere and begun again.
"""
