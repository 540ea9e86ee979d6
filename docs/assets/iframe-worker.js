// Browsers start no worker from a file, so that a site opened as one has no search.  There this runs a worker's script in
// a hidden frame: the same scripts and messages, in the page's own thread.  It needs no other machine.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = this.onerror = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.frame = document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.tell("message", { data });
      inside.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = done;
        script.onerror = failed;
        this.frame.contentDocument.head.append(script);
      });
    }

    tell(kind, about) {
      const event = new MessageEvent(kind, about);
      this.dispatchEvent(event);
      this[`on${kind}`]?.(event);
    }

    postMessage(data) {
      const send = () => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      this.ready.then(send, () => this.tell("error", {}));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
