package kafka

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/IBM/sarama"

	"postrider/sink"
)

// A broker names the addresses under which it and the others want to be reached: advertised.listeners.
// Where that is not what leads to them from here, the first contact works and nothing else does.

// AdvertisedError says that a broker cannot be reached under the address that it advertises.
type AdvertisedError struct {
	ID  int32
	Err error // with the address
}

func (e *AdvertisedError) Error() string {
	return fmt.Sprintf("broker %d cannot be reached under the address that it advertises: %v", e.ID, e.Err)
}

// Unwrap makes it sink.ErrNoBroker, beside its cause: the relay waits until a broker can be reached.
func (e *AdvertisedError) Unwrap() []error { return []error{sink.ErrNoBroker, translate(e.Err)} }

// FixAdvertised is what to do about an AdvertisedError.
const FixAdvertised = "correct the broker's advertised.listeners, name resolution or firewall"

// reachAdvertised connects to the brokers that alive has named until one can be reached, and returns why
// none can. A broker that advertises the address at which it has answered costs no connection.
func (d *dialer) reachAdvertised(alive string, advertised []*sarama.DescribeClusterBroker) error {
	var failed []error
	for _, b := range advertised {
		if net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) == alive {
			return nil
		}
	}
	for _, b := range advertised {
		conn, err := d.Dial("tcp", net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
		if err == nil {
			_ = conn.Close()
			return nil
		}
		failed = append(failed, &AdvertisedError{b.BrokerID, err})
	}
	if len(failed) == 0 {
		return nil
	}
	return advise(errors.Join(failed...), FixAdvertised)
}
