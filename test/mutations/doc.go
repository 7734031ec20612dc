// Package main breaks each promise of docs/GUARANTEES.md in the code, and shows that the
// promise's test fails then.
//
//	go run ./test/mutations
//
// Each *.patch of this folder is one change of the code, in the form that git apply takes. The
// lines before the change name the promise, as the table of GUARANTEES.md has it, and the test:
//
//	Promise: a status is never zero and never beyond what this connection has seen
//	Test: replication TestPositions_FlushIsNeverZeroNorBeyondWhatWasSeen
//
//	What the change does, if the change itself does not show it.
//
// The command runs in the root of the module. It applies each patch to a copy of the module and
// runs its test there. The test has to pass without the change, and to fail with it. A mutation
// whose test passes survives. The last line is "survivors: none", or names them, with exit status
// 1. With -only, a regular expression, it runs those whose name matches.
//
// The test of this package runs none of them. It shows that each fits the code and names a promise
// and a test of it, and that no promise is without a mutation.
//
// To write one: change the code, see the test fail, git diff > test/mutations/NAME.patch, put the
// lines above in front, and take the change back.
//
//	main.go   the command
//	patch.go  what a patch says, and whether it fits
//	try.go    the copy of the module, and what becomes of a mutation
package main
