"""The images of tests with real containers: one static program, built here and pulled nowhere."""
