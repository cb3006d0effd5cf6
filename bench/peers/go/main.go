// A driver of the benchmark of peers: one phase of work on one system, then one line of JSON.
// The phases and the lines are described in docs/reference/benchmarks.md.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

// options are what the phases need to know, from the command line.
type options struct {
	url       string
	count     int
	batch     int
	posters   int
	consumers int
	body      int
	rate      int
	seconds   int
	limit     time.Duration
	lead      time.Duration
}

func main() {
	var o options
	var system, phase string
	flag.StringVar(&system, "system", "", "duly, beanstalkd, rabbitmq or asynq")
	flag.StringVar(&phase, "phase", "", "batch, single, late, burst, fill or crash")
	flag.StringVar(&o.url, "url", "", "host:port of the server")
	flag.IntVar(&o.count, "count", 20_000, "messages")
	flag.IntVar(&o.batch, "batch", 1_000, "messages of one call")
	flag.IntVar(&o.posters, "posters", 64, "posters that send one message at a time")
	flag.IntVar(&o.consumers, "consumers", 16, "connections that receive and acknowledge")
	flag.IntVar(&o.body, "body", 256, "bytes of a body")
	flag.IntVar(&o.rate, "rate", 2_000, "messages per second of the phase late")
	flag.IntVar(&o.seconds, "seconds", 10, "how long the phase late sends")
	limit := flag.Int("limit", 30, "seconds after which batch, single and fill send no more")
	lead := flag.Int("lead", 0, "ms from the first send to the instant of the burst")
	flag.Parse()
	o.limit = time.Duration(*limit) * time.Second
	o.lead = time.Duration(*lead) * time.Millisecond

	result, err := run(system, phase, o)
	if err == nil {
		result["driver_cpu_s"] = cpuSeconds()
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s, %s: %v\n", system, phase, err)
		os.Exit(1)
	}
}

func run(name, phase string, o options) (result, error) {
	systems := map[string]func(options) system{
		"duly": newDuly, "beanstalkd": newBeanstalkd, "rabbitmq": newRabbitmq, "asynq": newAsynq,
	}
	phases := map[string]func(system, options) (result, error){
		"batch": batch, "single": single, "late": late, "burst": burst, "fill": batch, "crash": crash,
	}
	if systems[name] == nil || phases[phase] == nil {
		return nil, fmt.Errorf("unknown system or phase")
	}
	return phases[phase](systems[name](o), o)
}
