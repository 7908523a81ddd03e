// A test in Go that scripts its Kafka: go test, with franz-go and fletchlog on PATH.
package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

type addresses struct{ Bootstrap, Control string }

// serve starts a Kafka for one test.
func serve(t *testing.T) addresses {
	command := exec.Command("fletchlog", "serve", "--memory", "--auto-create", "1",
		"--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--print-address", "--with-parent")
	// With --with-parent the end of its standard input ends it, too.
	if _, err := command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Process.Kill(); command.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var found addresses
	if err := json.Unmarshal(line, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// call sends one request to the control interface.
func (a addresses) call(t *testing.T, method, path string, body, answer any) {
	data, _ := json.Marshal(body)
	request, _ := http.NewRequest(method, a.Control+"/v1"+path, bytes.NewReader(data))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatal(path, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
}

func TestAnOrderSurvivesAMovedLeader(t *testing.T) {
	kafka := serve(t)
	rule := map[string]any{"api": "Produce", "topic": "orders", "times": 2, "error": "NOT_LEADER_OR_FOLLOWER"}
	kafka.call(t, "POST", "/faults", map[string]any{"rules": []any{rule}}, &struct{}{})

	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Bootstrap), kgo.ClientID("shop"), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	sent := client.ProduceSync(context.Background(), &kgo.Record{Topic: "orders", Value: []byte("order 1")})
	if err := sent.FirstErr(); err != nil {
		t.Fatal(err)
	}

	var found struct{ Requests []struct{ Errors []string } }
	kafka.call(t, "GET", "/requests?api=Produce&client_id=shop", struct{}{}, &found)
	if got, want := fmt.Sprint(found.Requests), "[{[NOT_LEADER_OR_FOLLOWER]} {[NOT_LEADER_OR_FOLLOWER]} {[]}]"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}
