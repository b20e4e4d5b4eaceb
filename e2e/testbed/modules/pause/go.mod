// Version v1.0.0. Only the standard library, hence no go.sum.
module federate.dev/testbed/pause

go 1.26
