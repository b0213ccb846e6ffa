package mutant

// answer is where the tests of this package plant bugs.
func answer() int { return 42 }
