// Package soak holds no code but tests: two relays on two slots of one outbox, for a minute in CI
// and for hours before a release, while the load follows a daily curve and faults of all kinds
// strike in an order that a seed decides. Each relay publishes to a topic of its own:
//
//   - victim is also killed, stopped, frozen, paused and reloaded, and its outbox pruned by hand;
//   - witness is one process from the beginning to the end. Only the server, the brokers and the
//     network fail it. What it uses of the machine is measured whenever both have caught up.
//
// At the end no event may be lost, out of order, published without a commit, or twice without a
// session that explains it; no log line may have been repeated for one cause more than once a
// minute; and what the witness uses may not have grown:
//
//	go test ./test/soak
//	go test ./test/soak -v -seed 4711
//	go test ./test/soak -v -duration 3h -timeout 0
//
// From 10 minutes on there are three brokers, which are restarted, killed and moved one after the
// other, and outages of minutes. From 30 minutes on growth is judged; below that it is printed.
package soak
