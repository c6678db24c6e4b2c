/* Exact delivery in one channel, and the ledger by pairs.

   Actors (ProxySender) send rows, one a message, to one memory (ProxyReceiver), whose
   queue holds one. Tasks are killed, declared lost while they live, started again. A
   put that times out may arrive, at once, later, or never. ps 0 keeps the Books.
   Pairs are independent of each other, so one memory shows what several do.

   Properties: assertions here; no invalid end state; no cycle at all (-DNP without
   any progress label), so that every execution ends, without any fairness. */

#include "sizes.inc"

#ifndef ROWS
#define ROWS 2  /* that an incarnation of an actor sends at most */
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1  /* puts that time out with their message still under way */
#endif

#define K (ACTORS * LIVES)        /* producers: an actor's incarnation each */
#define KEY(a, inc) ((a) * LIVES + (inc) - 1)
#define PAIR(k, owner) ((k) * LIVES + (owner) - 1)

/* The memory: one queue an incarnation. Message: producer, sequence, END? */
chan queue[LIVES] = [1] of { byte, byte, bit };
bit closed[LIVES];
byte memory_up;      /* incarnation that lives, 0: none */

/* What lives, and what ps 0 has heard of it. */
byte up[ACTORS];
byte heard[ACTORS];  /* newest incarnation that has joined */
byte state[ACTORS];
byte memory_heard;
byte memory_state;
bit stopping;
bit actor_over[ACTORS];  /* will not be started again */
bit memory_over;
byte crashes, pauses, timeouts;

/* A put that timed out: its message is under way. */
bit late[ACTORS];
byte late_owner[ACTORS], late_key[ACTORS], late_sequence[ACTORS];
bit late_end[ACTORS];

/* Counters of the tasks. */
byte sent[K], refused[K];
byte tried[K * LIVES], unsure[K * LIVES];
byte received[LIVES], gaps[LIVES];
byte seen[K * LIVES], sequence[K * LIVES];
bit ended[K * LIVES];
byte got[K];         /* truth: which rows were accepted, as bits */

/* The books of ps 0: the same, as the last beats said it. */
byte b_sent[K], b_refused[K];
byte b_tried[K * LIVES], b_unsure[K * LIVES];
byte b_received[LIVES], b_gaps[LIVES];
byte b_seen[K * LIVES];
bit died[K], memory_died[LIVES];  /* neither: lives, or has left */

/* `peer_is_gone` of the memory: a lost one may come back until the run stops. */
#ifdef FAULT_WAIT_FOR_LOST
#define MEMORY_GONE (memory_state == DONE || memory_state == REFUSED)
#else
#define MEMORY_GONE (GONE(memory_state) && (stopping || memory_state != LOST))
#endif

inline actor_beats(a, inc) {  /* its row overwrites the one before */
    d_step {
        b_sent[KEY(a, inc)] = sent[KEY(a, inc)];
        b_refused[KEY(a, inc)] = refused[KEY(a, inc)];
        i = 0;
        do
        :: i < LIVES ->
            b_tried[KEY(a, inc) * LIVES + i] = tried[KEY(a, inc) * LIVES + i];
            b_unsure[KEY(a, inc) * LIVES + i] = unsure[KEY(a, inc) * LIVES + i];
            i++
        :: else -> break
        od;
        i = 0
    }
}

#define FENCED (heard[a] != inc || state[a] != JOINED)
#define ALIVE (up[a] == inc)

proctype actor(byte a) {
    byte inc = 1, todo, number, client, bound, i;
    bit end, abandoned;

birth:
    atomic {
        todo = ROWS; number = 0; client = 0; bound = 0; end = 0; abandoned = 0;
    }
next:  /* `_next_items`: a message gets its number, or END does */
    if
    :: atomic { !ALIVE -> goto death }
    :: atomic { ALIVE && FENCED -> up[a] = 0; goto death }
    :: atomic {
        ALIVE && todo && !stopping ->
            todo--; number++; sent[KEY(a, inc)]++;
    }
    :: atomic { ALIVE -> end = 1; number++ }  /* stopping, or asked to leave */
    fi;
deliver:
    do
    :: atomic { !ALIVE -> goto death }
    :: atomic { ALIVE && FENCED -> up[a] = 0; goto death }
    :: atomic { ALIVE && MEMORY_GONE && !abandoned -> abandoned = 1 }
    :: atomic {
        ALIVE && abandoned ->
            if
            :: end -> skip
            :: !end && !bound -> refused[KEY(a, inc)]++
            :: !end && bound -> unsure[PAIR(KEY(a, inc), bound)]++
            fi;
            break
    }
    :: atomic {  /* `_open`, and the message is bound to who answers */
        ALIVE && !abandoned && !bound && (client || memory_up) ->
            if :: client -> skip :: else -> client = memory_up fi;
            bound = client;
            if :: end -> skip :: else -> tried[PAIR(KEY(a, inc), bound)]++ fi
    }
#ifdef FAULT_SPIN_WHILE_DEAD
    :: atomic { ALIVE && bound && !memory_up -> skip }
#endif
#ifdef FAULT_REBIND
    :: atomic {
        ALIVE && !abandoned && bound && memory_up && memory_up != bound ->
            client = memory_up; bound = client;
            if :: end -> skip :: else -> tried[PAIR(KEY(a, inc), bound)]++ fi
    }
#else
    :: atomic {  /* its host died, and may have counted it */
        ALIVE && !abandoned && bound && memory_up && memory_up != bound ->
            client = memory_up;
            if :: end -> skip :: else -> unsure[PAIR(KEY(a, inc), bound)]++ fi;
            break
    }
#endif
    :: atomic {  /* ChannelClosed */
        ALIVE && !abandoned && bound && memory_up == bound && closed[bound - 1] ->
            client = 0;
            if :: end -> skip :: else -> unsure[PAIR(KEY(a, inc), bound)]++ fi;
            break
    }
    :: atomic {
        ALIVE && !abandoned && bound && memory_up == bound && !closed[bound - 1] &&
        nfull(queue[bound - 1]) ->
            queue[bound - 1]!KEY(a, inc), number, end;
            break
    }
    :: atomic {  /* TimeoutError: it is put again, under the same number */
        ALIVE && !abandoned && bound && memory_up == bound && !closed[bound - 1] &&
        timeouts < TIMEOUTS && !late[a] ->
            timeouts++; late[a] = 1;
            late_owner[a] = bound; late_key[a] = KEY(a, inc);
            late_sequence[a] = number; late_end[a] = end
    }
    od;
    atomic {
        bound = 0;
        if
        :: end -> goto farewell
        :: else -> goto next
        fi
    }
farewell:
    atomic {
        if
        :: !ALIVE -> goto death
        :: ALIVE && FENCED -> up[a] = 0; goto death
        :: ALIVE && !FENCED ->
            actor_beats(a, inc);
            state[a] = DONE; up[a] = 0; actor_over[a] = 1; goto gone
        fi
    }
death:  /* the launcher starts it again, or not */
    if
    :: atomic {
        inc < LIVES && !stopping ->
            inc++; up[a] = inc;
#ifndef FAULT_OLD_NOT_FENCED
            if :: state[a] == JOINED -> died[KEY(a, heard[a])] = 1 :: else fi;
#endif
            heard[a] = inc; state[a] = JOINED;
            goto birth
    }
    :: atomic { inc == LIVES || stopping -> actor_over[a] = 1 }  /* refused */
    fi;
gone:
    atomic { inc = 0; todo = 0; number = 0; client = 0; bound = 0; end = 0; abandoned = 0 }
}

/* Its beats on the way: at any time at which they have something to say. */
proctype actor_heartbeat(byte a) {
    byte i, inc;

end:
    do
    :: atomic {
        up[a] && heard[a] == up[a] && state[a] == JOINED &&
        (b_sent[KEY(a, up[a])] != sent[KEY(a, up[a])] ||
         b_refused[KEY(a, up[a])] != refused[KEY(a, up[a])]) ->
            inc = up[a]; actor_beats(a, inc); inc = 0
    }
    od
}

inline memory_beats(inc) {
    d_step {
        b_received[inc - 1] = received[inc - 1];
        b_gaps[inc - 1] = gaps[inc - 1];
        i = 0;
        do
        :: i < K ->
            b_seen[PAIR(i, inc)] = seen[PAIR(i, inc)];
            i++
        :: else -> break
        od;
        i = 0
    }
}

inline accept() {  /* `_accept`; a row's total is its number, END's one less */
    d_step {
        i = PAIR(key, inc);
        if
#ifndef FAULT_COUNT_TWICE
        :: number <= sequence[i] -> skip  /* counted as a duplicate */
#endif
        :: else ->
            if
            :: !sequence[i] && number > 1 -> missing = 0
            :: else ->
                if
                :: number > sequence[i] -> missing = number - 1 - sequence[i]
                :: else -> missing = 0
                fi
            fi;
            gaps[inc - 1] = gaps[inc - 1] + missing;
            seen[i] = seen[i] + missing;
            if
            :: end -> ended[i] = 1
            :: else ->
                assert(!(got[key] & (1 << number)));  /* no row twice, anywhere */
                got[key] = got[key] | (1 << number);
                received[inc - 1]++;
                seen[i]++
            fi;
            sequence[i] = number
        fi;
        i = 0; key = 0; number = 0; end = 0; missing = 0
    }
}

#define M_ALIVE (memory_up == inc)
#define M_FENCED (memory_heard != inc || memory_state != JOINED)
#define ENDED(a) \
    (state[a] != JOINED || ended[PAIR(KEY(a, heard[a]), inc)])
#ifdef FAULT_CLOSE_EARLY
#define DRAINED stopping
#else
#define DRAINED (stopping && EACH_ACTOR(ENDED))
#endif
/* Nobody who lives, and whom ps 0 has not given up, still sends. */
#define SILENT(a) (!up[a] || up[a] != heard[a] || ENDED(a))

proctype memory() {
    byte inc = 1, i, key, number, missing;
    bit end;

serve:
    do
    :: atomic { !M_ALIVE -> goto death }
    :: atomic { M_ALIVE && M_FENCED -> memory_up = 0; goto death }
    :: atomic { M_ALIVE && queue[inc - 1]?[key, number, end] ->
                queue[inc - 1]?key, number, end; accept() }
    :: atomic { M_ALIVE && !M_FENCED && DRAINED -> break }
    od;
    atomic {  /* the decision was a moment ago */
        if
        :: !M_ALIVE -> goto death
        :: else ->
            assert(M_FENCED || EACH_ACTOR(SILENT));
            closed[inc - 1] = 1
        fi
    }
    do
    :: atomic { !M_ALIVE -> goto death }
    :: atomic { M_ALIVE && nempty(queue[inc - 1]) ->
                queue[inc - 1]?key, number, end; accept() }
    :: atomic { M_ALIVE && empty(queue[inc - 1]) -> break }
    od;
    atomic {
        if
        :: !M_ALIVE -> goto death
        :: M_ALIVE && M_FENCED -> memory_up = 0; goto death
        :: else ->
            memory_beats(inc);
            memory_state = DONE; memory_up = 0; memory_over = 1; goto gone
        fi
    }
death:
    if
    :: atomic {
        inc < LIVES && !stopping ->
            inc++; memory_up = inc;
#ifndef FAULT_OLD_NOT_FENCED
            if
            :: memory_state == JOINED -> memory_died[memory_heard - 1] = 1
            :: else
            fi;
#endif
            memory_heard = inc; memory_state = JOINED;
            goto serve
    }
    :: atomic { inc == LIVES || stopping -> memory_over = 1 }
    fi;
gone:
    skip
}

proctype memory_heartbeat() {
    byte i, inc;

end:
    do
    :: atomic {
        memory_up && memory_heard == memory_up && memory_state == JOINED &&
        (b_received[memory_up - 1] != received[memory_up - 1] ||
         b_gaps[memory_up - 1] != gaps[memory_up - 1]) ->
            inc = memory_up; memory_beats(inc); inc = 0
    }
    od
}

/* What has timed out arrives later, or never. */
proctype network(byte a) {
end:
    do
    :: atomic {
        late[a] && memory_up == late_owner[a] && !closed[late_owner[a] - 1] &&
        nfull(queue[late_owner[a] - 1]) ->
            queue[late_owner[a] - 1]!late_key[a], late_sequence[a], late_end[a];
            late[a] = 0; late_owner[a] = 0; late_key[a] = 0;
            late_sequence[a] = 0; late_end[a] = 0
    }
    :: atomic {
        late[a] ->
            late[a] = 0; late_owner[a] = 0; late_key[a] = 0;
            late_sequence[a] = 0; late_end[a] = 0
    }
    od
}

/* Who kills, and who misses beats. */
#define FATE(a) \
    :: atomic { crashes < CRASHES && up[a] -> crashes++; up[a] = 0 } \
    :: atomic { state[a] == JOINED && !up[a] -> \
                state[a] = LOST; died[KEY(a, heard[a])] = 1 } \
    :: atomic { pauses < PAUSES && state[a] == JOINED && up[a] == heard[a] -> \
                pauses++; state[a] = LOST; died[KEY(a, heard[a])] = 1 }

proctype fate() {
end:
    do
    FATE(0)
#if ACTORS > 1
    FATE(1)
#endif
#if ACTORS > 2
    FATE(2)
#endif
    :: atomic { crashes < CRASHES && memory_up -> crashes++; memory_up = 0 }
    :: atomic {
        memory_state == JOINED && !memory_up ->
            memory_state = LOST; memory_died[memory_heard - 1] = 1
    }
    :: atomic {
        pauses < PAUSES && memory_state == JOINED && memory_up == memory_heard ->
            pauses++; memory_state = LOST; memory_died[memory_heard - 1] = 1
    }
    od
}

#define OVER(a) (actor_over[a] && GONE(state[a]) && !late[a])
#define MAX(x, y) (x > y -> x : y)

/* `Books._add_up`, and what it must come to. */
inline add_up() {
    d_step {
        k = 0;
        do
        :: k < K ->
            all_sent = all_sent + b_sent[k];
            all_lost = all_lost + b_refused[k];
            true_sent = true_sent + sent[k];
            put = 0; o = 0;
            do
            :: o < LIVES ->
                rows = MAX(b_tried[k * LIVES + o], b_seen[k * LIVES + o]);
                put = put + rows;
                rows = rows - b_seen[k * LIVES + o];
                if
                :: died[k] || memory_died[o] -> all_lost = all_lost + rows
                :: else ->
                    if
                    :: rows > b_unsure[k * LIVES + o] ->
                        rows = b_unsure[k * LIVES + o]
                    :: else
                    fi;
                    all_lost = all_lost + rows
                fi;
                if
                :: memory_died[o] -> all_received = all_received + b_seen[k * LIVES + o]
                :: else
                fi;
                o++
            :: else -> break
            od;
            if
            :: died[k] ->
                if
                :: b_sent[k] >= b_refused[k] + put ->
                    all_lost = all_lost + b_sent[k] - b_refused[k] - put
                :: else ->
                    all_sent = all_sent + b_refused[k] + put - b_sent[k]
                fi
            :: else
            fi;
            any_died = any_died || died[k];
            k++
        :: else -> break
        od;
        o = 0;
        do
        :: o < LIVES ->
            true_received = true_received + received[o];
            all_lost = all_lost + b_gaps[o];
            if
            :: memory_died[o] -> all_received = all_received - b_gaps[o]
            :: else -> all_received = all_received + b_received[o]
            fi;
            owner_died = owner_died || memory_died[o];
            o++
        :: else -> break
        od
    }
}

init {
    byte k, o, put, rows, all_sent, all_received, all_lost;
    byte true_sent, true_received;
    bit any_died, owner_died;

    atomic {
        memory_up = 1; memory_heard = 1; memory_state = JOINED;
        do
        :: k < ACTORS ->
            up[k] = 1; heard[k] = 1; state[k] = JOINED;
            run actor(k); run actor_heartbeat(k);
#if TIMEOUTS
            run network(k);
#endif
            k++
        :: else -> break
        od;
        k = 0;
        run memory(); run memory_heartbeat(); run fate()
    }
    stopping = 1;
    atomic {
        EACH_ACTOR(OVER) && memory_over && GONE(memory_state) ->
            add_up();
            assert(all_sent == all_received + all_lost);
            assert(all_sent <= true_sent && all_received <= true_received);
            assert(any_died || all_sent == true_sent);
            assert(owner_died || all_received == true_received);
            assert(any_died || owner_died || !all_lost)
    }
}
