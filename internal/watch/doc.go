// Package watch is the screen of `postrider status --watch`: what the status page shows, on a terminal.
//
//	watch.go Screen: looking, and keys
//	view.go  how it is drawn
package watch
