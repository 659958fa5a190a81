package server_test

// differences are all that TestRealClient accepts.
func differences() []difference {
	return []difference{}
}
