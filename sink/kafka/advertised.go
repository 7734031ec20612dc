package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
)

// AdvertisedError: a broker cannot be reached under the address that it advertises
// (advertised.listeners): the first contact works, and nothing else does.
type AdvertisedError struct {
	ID  int32
	Err error // with the address
}

func (e *AdvertisedError) Error() string {
	return fmt.Sprintf("broker %d cannot be reached under the address that it advertises: %v", e.ID,
		e.Err)
}

// Unwrap makes it sink.ErrNoBroker, beside its cause: the relay waits until a broker can be
// reached.
func (e *AdvertisedError) Unwrap() []error { return []error{sink.ErrNoBroker, Translate(e.Err)} }

// FixAdvertised is what to do about an AdvertisedError.
const FixAdvertised = "correct the broker's advertised.listeners, name resolution or firewall"

const (
	advertisedDials = 64  // brokers that are dialled
	advertisedNamed = 3   // brokers that an error names
	longestHost     = 253 // bytes of a name in DNS: RFC 1035, 2.3.4, without the length octets
)

// reachAdvertised connects to brokers that alive has named until one can be reached, or returns
// why none can. It makes no connection if one advertises the address at which it has answered.
func (d *Dialer) reachAdvertised(ctx context.Context, alive string,
	advertised []kmsg.MetadataResponseBroker) error {
	isAlive := func(b kmsg.MetadataResponseBroker) bool { return address(b) == alive }
	if len(advertised) == 0 || slices.ContainsFunc(advertised, isAlive) {
		return nil
	}
	advertised = byID(advertised)[:min(len(advertised), advertisedDials)]
	failed := make([]error, len(advertised))
	dialled := make(chan bool, len(advertised))
	for i, b := range advertised {
		if len(b.Host) > longestHost {
			failed[i] = &AdvertisedError{b.NodeID,
				fmt.Errorf("%w: a name of %d bytes", sink.ErrUnreachable, len(b.Host))}
			dialled <- false
			continue
		}
		go func() { // ends with its dial, at the latest when d is cut; never blocks on dialled
			conn, err := d.DialContext(ctx, "tcp", address(b))
			if err == nil {
				_ = conn.Close()
			} else {
				failed[i] = &AdvertisedError{b.NodeID, err}
			}
			dialled <- err == nil
		}()
	}
	for range advertised {
		if <-dialled {
			return nil
		}
	}
	named := failed[:min(len(failed), advertisedNamed)]
	if more := len(failed) - len(named); more > 0 {
		named = append(slices.Clone(named), fmt.Errorf("%d more brokers of the cluster neither",
			more)) //nolint:err113 // a part of the text
	}
	return Advise(errors.Join(named...), FixAdvertised)
}

func byID(brokers []kmsg.MetadataResponseBroker) []kmsg.MetadataResponseBroker {
	return slices.SortedFunc(slices.Values(brokers),
		func(a, b kmsg.MetadataResponseBroker) int { return cmp.Compare(a.NodeID, b.NodeID) })
}

func address(b kmsg.MetadataResponseBroker) string {
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}
