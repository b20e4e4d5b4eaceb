package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	// A report that cannot be delivered in this time is given up: the container shall run anyway.
	tellFor   = 20 * time.Second
	tellOnce  = 2 * time.Second
	tellAgain = 200 * time.Millisecond

	largestReport = 1 << 16
)

// report is one thing a run tells. A report may arrive twice: run and event together are its name.
type report struct {
	Space     string `json:"space"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Container string `json:"container"`
	Run       string `json:"run"`
	Version   string `json:"version"`
	Event     string `json:"event"`
	Detail    string `json:"detail"`

	// HeardAt is the witness's own word, in seconds since 1970.
	HeardAt float64 `json:"heard_at"`
}

// run is one life of a container, or of a hook in it.
type run struct {
	witness string
	about   report
}

func newRun() run {
	host, err := os.Hostname()
	check(err)
	return run{witness: os.Getenv("WITNESS"), about: report{
		Space:     os.Getenv("SPACE"),
		Pod:       host,
		UID:       os.Getenv("POD_UID"),
		Container: os.Getenv("CONTAINER"),
		Run:       rand.Text(),
		Version:   os.Getenv("VERSION"),
	}}
}

// tell returns when the witness has heard it.
func (r run) tell(event, detail string) {
	if r.witness == "" {
		return
	}
	told := r.about
	told.Event, told.Detail = event, detail
	body, err := json.Marshal(told)
	check(err)
	client := &http.Client{Timeout: tellOnce}
	for deadline := time.Now().Add(tellFor); ; time.Sleep(tellAgain) {
		err := post(client, r.witness, body)
		if err == nil {
			return
		}
		fmt.Fprintln(os.Stderr, err)
		if time.Now().After(deadline) {
			return
		}
	}
}

func post(client *http.Client, url string, body []byte) error {
	answer, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the witness says %s", answer.Status)
	}
	return nil
}

// hearReports prints each report as one line, in the order of their arrival.
func hearReports(ctx context.Context) error {
	var writing sync.Mutex
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", func(writer http.ResponseWriter, request *http.Request) {
		var told report
		body := io.LimitReader(request.Body, largestReport)
		if err := json.NewDecoder(body).Decode(&told); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		writing.Lock()
		defer writing.Unlock()
		told.HeardAt = float64(time.Now().UnixMicro()) / 1e6
		line, err := json.Marshal(told)
		check(err)
		fmt.Println(string(line))
	})
	return answer(ctx, open(), mux)
}
