"""Random users, random admins and random faults around two replicas, and a witness of it all.

`plan` draws what is to happen, `stage` is where it happens, `users` and `faults` carry it out,
`watching` and `judge` look on from outside, `calm` tells whether both sides agree, and `run` is the
whole story, with `report` at its end.
"""
