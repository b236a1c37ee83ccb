"""`/in/<pipeline><path>`: raw requests to pipeline processes, and their answers back.

    forward.py   one HTTP request: name, limits, head, body, answer
    lanes.py     the open lane of each pipeline; why there is none
    lane.py      one multiplexed Ingest stream, many requests per message
    budget.py    how many bytes of bodies are held at once
    answer.py    a finished answer as bytes

It decides nothing about a packet: route, auth, format and status are the
pipeline's http input's. It never repeats a request.
"""
