// Package exit holds how a command ends: exit codes, and errors with what they mean for the WAL
// and what to type next.
//
//	exit.go    Error, and how it is printed
//	explain.go Explain: the table of errors
package exit
