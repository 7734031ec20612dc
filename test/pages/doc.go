// Package pages has tests that do what the pages on pruning, writing back and pace say, word for
// word, as the roles that they name. Pages with programs of their own are followed beside them: in
// outbox, internal/trace, test/poller and test/examples.
package pages
