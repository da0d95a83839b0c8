package main

import (
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
// file, which is the work the service does, the plain way.
func serveFloor(kind string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on http://" + listener.Addr().String())
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
