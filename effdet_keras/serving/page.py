"""The page at /: drop images on it, and see boxes, with a slider for the threshold."""

from effdet_keras.pages.page import html_page


def page() -> str:
    """Returns the page: one HTML file, which asks nobody but its own server.

    Example:
        >>> "drop" in page().lower()
        True
    """
    return html_page("Detection", _BODY)


_BODY = """
<h1>Detection</h1>
<p>Drop images here, or <input type="file" id="files" accept="image/*" multiple
 aria-label="Choose images"></p>
<p><label>Lowest score <input type="range" id="score" min="0.05" max="1" step="0.01"
 value="0.3"></label> <output id="shown">0.30</output></p>
<p id="message" class="error" role="alert"></p>
<div class="images" id="images"></div>
<script>
"use strict";
const found = [];  // of each image: canvas, caption, bitmap, detections
const score = document.getElementById("score");
const message = document.getElementById("message");
const color = k => `hsl(${(k * 137.5) % 360} 90% 45%)`;

function draw({canvas, caption, bitmap, detections}) {
  const pen = canvas.getContext("2d"), size = Math.max(bitmap.width, bitmap.height);
  const kept = detections.filter(d => d.score >= Number(score.value));
  pen.drawImage(bitmap, 0, 0);
  pen.lineWidth = Math.max(2, size / 300);
  pen.font = `${Math.max(11, size / 45)}px system-ui, sans-serif`;
  for (const d of kept) {
    const [x0, y0, x1, y1] = d.box;
    pen.strokeStyle = pen.fillStyle = color(d["class"]);
    pen.strokeRect(x0, y0, x1 - x0, y1 - y0);
    pen.fillText(`${d.label} ${d.score.toFixed(2)}`, x0 + 3, Math.max(y0 - 4, 12));
  }
  caption.textContent = `${caption.dataset.name}: ${kept.length} found`;
}

async function detect(file) {
  const headers = {"Content-Type": "application/octet-stream"};
  const answer = await fetch("detect?format=json&score=0.05",
    {method: "POST", body: file, headers});
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  const figure = document.createElement("figure");
  const canvas = document.createElement("canvas");
  const caption = document.createElement("figcaption");
  const bitmap = await createImageBitmap(file);
  canvas.width = bitmap.width; canvas.height = bitmap.height;
  canvas.style.maxWidth = "100%";
  caption.dataset.name = file.name;
  figure.append(canvas, caption);
  document.getElementById("images").prepend(figure);
  const entry = {canvas, caption, bitmap, detections: content.detections};
  found.push(entry); draw(entry);
}

async function detectAll(files) {
  message.textContent = "";
  for (const file of files) {
    try { await detect(file); }
    catch (error) { message.textContent = `${file.name}: ${error.message}`; }
  }
}

score.addEventListener("input", () => {
  document.getElementById("shown").textContent = Number(score.value).toFixed(2);
  found.forEach(draw);
});
document.getElementById("files").addEventListener("change",
  event => detectAll([...event.target.files]));
document.addEventListener("dragover", event => event.preventDefault());
document.addEventListener("drop", event => {
  event.preventDefault(); detectAll([...event.dataTransfer.files]);
});
</script>
"""
