package slot

import "time"

// RenewEvery makes a monitor that does not run yet replace its connection more often.
func (m *Monitor) RenewEvery(d time.Duration) { m.renew = d }
