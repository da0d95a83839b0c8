package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// request is the body of every operation, as far as a bare handler looks at it.
type request struct {
	Number  string `json:"number"`
	Options struct {
		Delay float64 `json:"delay"`
	} `json:"options"`
	TextMessage struct {
		Text string `json:"text"`
	} `json:"textMessage"`
	MediaMessage struct {
		Media string `json:"media"`
	} `json:"mediaMessage"`
}

const floorAnswer = `{"status":"success","message":"Message sent successfully","data":{"messageId":"%s"}}`

// serveFloor serves one bare handler: "text" decodes and answers, and waits if
// there is a delay; "base64" decodes the media too, hashes it and keeps it in a
// file, which is the work the service does, the plain way; "graph" stands in for
// the Cloud API; "forward" sends each text on to the one at $UPSTREAM; "files"
// serves a file; "copy" downloads what a request names into a file.
func serveFloor(kind string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on http://" + listener.Addr().String())
	switch kind {
	case "graph":
		return http.Serve(listener, http.HandlerFunc(standIn))
	case "files":
		return http.Serve(listener, http.HandlerFunc(serveFile))
	case "copy":
		return http.Serve(listener, http.HandlerFunc(download))
	case "forward":
		upstream := os.Getenv("UPSTREAM") + "/v25.0/1/messages"
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
		return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { forward(client, upstream, w, r) }))
	}
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var decoded request
		if err == nil {
			err = json.Unmarshal(body, &decoded)
		}
		id := "1"
		if err == nil && kind == "base64" {
			id, err = keep(decoded.MediaMessage.Media)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if decoded.Options.Delay > 0 {
			body = nil
			time.Sleep(time.Duration(decoded.Options.Delay * float64(time.Millisecond)))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, floorAnswer, id)
	}))
}

func keep(media string) (id string, err error) {
	content, err := base64.StdEncoding.DecodeString(media)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	f, err := os.CreateTemp("", "floor-*")
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.Write(content)
	return fmt.Sprintf("%x", sum[:8]), err
}

// standIn answers as the Cloud API does.
func standIn(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"messaging_product":"whatsapp","contacts":[{"input":"1","wa_id":"1"}],"messages":[{"id":"wamid.HBgLMTU1NTAwMDEyMzQ="}]}`)
}

// forward is the least that sends a text on with net/http.
func forward(client *http.Client, upstream string, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var decoded request
	if err == nil {
		err = json.Unmarshal(body, &decoded)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	payload, _ := json.Marshal(map[string]any{
		"messaging_product": "whatsapp", "recipient_type": "individual", "to": decoded.Number,
		"type": "text", "text": map[string]any{"body": decoded.TextMessage.Text},
	})
	out, err := http.NewRequestWithContext(r.Context(), "POST", upstream, bytes.NewReader(payload))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out.Header.Set("Authorization", "Bearer bench")
	out.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	var sent struct {
		Messages []struct{ ID string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&sent); err != nil || len(sent.Messages) == 0 {
		http.Error(w, "no id", http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, floorAnswer, sent.Messages[0].ID)
}

// fileSize is that of the file that is served, in bytes.
const fileSize = 100 << 20

func serveFile(w http.ResponseWriter, _ *http.Request) {
	block := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", fmt.Sprint(fileSize))
	for range fileSize / len(block) {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func download(w http.ResponseWriter, r *http.Request) {
	var decoded request
	err := json.NewDecoder(r.Body).Decode(&decoded)
	if err == nil {
		err = copyToFile(decoded.MediaMessage.Media)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintf(w, floorAnswer, "1")
}

func copyToFile(url string) error {
	answer, err := http.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	f, err := os.CreateTemp("", "floor-*")
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, answer.Body)
	return err
}
