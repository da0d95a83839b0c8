package platformtest

import "testing"

func TestFilesAreWhatTheySeem(t *testing.T) {
	for want, content := range map[string]string{
		"image/png": PNG, "image/jpeg": JPEG, "video/mp4": MP4, "application/pdf": PDF, "audio/amr": AMR, "audio/ogg; codecs=opus": Opus,
	} {
		if got := Blob(t, content).Type().MIME; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if !Blob(t, Stereo).Type().IsOpus() {
		t.Error("the stereo file is not Opus")
	}
}
