module federate.test/app

go 1.24
