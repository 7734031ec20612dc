// Package watch is the screen of `postrider status --watch`: the status page on a terminal.
//
//	watch.go   Screen: the model, keys and refreshes
//	content.go what is shown, from the relay or the database
//	view.go    the frame: head, tabs, keys
//	tabs.go    what each tab shows
//	text.go    tables, sparklines and numbers
package watch
