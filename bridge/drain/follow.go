package drain

// Followed reports whether a bridge follows the order for a queue, or for all of these queues if the name is empty.
// shown has the reasons by queue that the bridge publishes (bridge.Condition.Drained). With want false, it reports
// whether the bridge follows the end of the order, unless another order still drains the queue.
func Followed(shown map[string]string, orders Orders, queue string, queues []string, want bool) bool {
	if queue != "" {
		queues = []string{queue}
	}
	for _, q := range queues {
		_, still := orders.Of(q)
		if _, drained := shown[q]; drained != (want || still) {
			return false
		}
	}
	return true
}
